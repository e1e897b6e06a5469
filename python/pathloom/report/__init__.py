"""Reports: pictures, tables and pages."""
