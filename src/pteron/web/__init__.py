"""Programs for the browser: a frozen program, and a static site that runs it without Python."""
