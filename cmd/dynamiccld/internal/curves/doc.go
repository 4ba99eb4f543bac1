// Package curves draws what an evaluation found.
package curves
