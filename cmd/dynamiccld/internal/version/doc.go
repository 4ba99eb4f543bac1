// Package version says which build this is.
package version
