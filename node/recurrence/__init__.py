"""When messages that recur are due: what their headers say, cron expressions, time zones (RULES S6). Pure."""
