"""Generated wire code (``make proto``); never edited by hand."""
