"""Small parts that all of the app uses: errors, output, logs, sizes, durations."""
