"""What `import pathloom` offers, and the commands use: experiments and their results, with reports."""
