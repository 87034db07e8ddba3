"""The Textual widgets of the view, one a file. They hold no facts: lines of text come from `draw`."""
