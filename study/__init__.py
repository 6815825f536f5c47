"""The study behind docs/study.md: results that are kept in results/, and the tables and plots made of them."""
