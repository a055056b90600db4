"""What people look at: terminal tables, the HTML page, Markdown and JUnit for CI."""
