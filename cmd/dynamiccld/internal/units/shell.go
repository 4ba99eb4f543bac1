package units

import "strings"

// Quote makes one word of a POSIX shell of any text: single quotes keep all but themselves.
func Quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// Word quotes a text that a shell would not take for one word as it is, for commands that people copy.
func Word(s string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+:,@%="
	if s == "" || strings.ContainsFunc(s, func(r rune) bool { return !strings.ContainsRune(plain, r) }) {
		return Quote(s)
	}
	return s
}
