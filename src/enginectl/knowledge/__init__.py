"""What enginectl knows, as data: engines, wait points, rules and advice."""
