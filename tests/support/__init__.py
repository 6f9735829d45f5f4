"""What several folders of tests share: builders of cells and runs."""
