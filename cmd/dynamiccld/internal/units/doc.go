// Package units reads and writes sizes and durations as people do.
package units
