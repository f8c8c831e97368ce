"""What people look at: tables, pages, and bytes counted again in what the compiler made of a plan."""
