"""What people look at: charts and pages."""
