"""What makes the documentation: tutorials that are run, pages made from the code, pictures."""
