"""The live view of one engine: `enginectl top`.

`moment` is what arrives, `screenful` what is shown, `draw/` turns it into text without any app, `widgets/` and
`app` put that text on a terminal with Textual.
"""
