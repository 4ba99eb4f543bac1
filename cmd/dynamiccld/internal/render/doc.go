// Package render writes what commands show as plain text: no colour, no cursor movement, so that it reads the same in a
// terminal, a file and a mail.
package render
