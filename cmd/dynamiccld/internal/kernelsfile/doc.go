// Package kernelsfile finds the files of our kernels that ranks read, and says beforehand which of them ranks refuse.
package kernelsfile
