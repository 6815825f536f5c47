"""The study behind docs/science/study.md: results that are kept in results/, and the tables and plots made of them."""
