// Package bar makes the progress bars of commands.
package bar

import (
	"io"

	"github.com/pterm/pterm"
)

// New makes a bar on a terminal that shows no more than its title and how far it is.
func New(terminal io.Writer, total int) *pterm.ProgressbarPrinter {
	b := pterm.DefaultProgressbar.WithWriter(terminal).WithTotal(total).WithShowElapsedTime(false).WithMaxWidth(120)
	// Not Start: it hides the cursor through standard output, which may be a file, and a second signal would leave it
	// hidden.
	b.IsActive = true
	return b
}
