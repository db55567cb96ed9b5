"""Build the documentation: run the tutorials, and generate pages and pictures from the code."""
