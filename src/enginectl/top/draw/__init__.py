"""Drawing without an app: every function turns a `Screenful` and a width into lines of text."""
