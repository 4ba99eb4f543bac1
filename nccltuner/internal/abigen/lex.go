package main

import (
	"fmt"
	"strings"
)

type tokenKind int

const (
	tokenEnd       tokenKind = iota
	tokenWord                // identifier or number
	tokenMark                // one punctuation character
	tokenDirective           // a whole preprocessor line without its comment
	tokenComment
)

// token is one lexical element. line is where it starts, endLine where it ends (comments span lines).
type token struct {
	kind          tokenKind
	text          string
	line, endLine int
}

// syntaxError names the line, so that the editor of abi.h finds what is not supported.
func syntaxError(name string, line int, format string, args ...any) error {
	return fmt.Errorf("%s:%d: %s", name, line, fmt.Sprintf(format, args...))
}

func isWord(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// lex cuts a header into tokens. Comments are kept: they become the Go comments.
func lex(name, src string) ([]token, error) {
	var tokens []token
	line, lineStart := 1, true
	for i := 0; i < len(src); {
		c := src[i]
		switch {
		case c == '\n':
			line++
			lineStart = true
			i++
			continue
		case c == ' ' || c == '\t' || c == '\r':
			i++
			continue
		case strings.HasPrefix(src[i:], "/*"):
			end := strings.Index(src[i+2:], "*/")
			if end < 0 {
				return nil, syntaxError(name, line, "comment without end")
			}
			text := src[i+2 : i+2+end]
			t := token{tokenComment, text, line, line + strings.Count(text, "\n")}
			tokens = append(tokens, t)
			line = t.endLine
			i += end + 4
			continue // a comment does not end the start of a line: a directive may follow it
		case c == '#' && lineStart:
			text, n := directive(src[i:])
			if strings.HasSuffix(text, "\\") {
				return nil, syntaxError(name, line, "continued directive is not supported")
			}
			tokens = append(tokens, token{tokenDirective, text, line, line})
			i += n
		case isWord(c):
			j := i
			for j < len(src) && isWord(src[j]) {
				j++
			}
			tokens = append(tokens, token{tokenWord, src[i:j], line, line})
			i = j
		case strings.IndexByte("{}[];", c) >= 0:
			tokens = append(tokens, token{tokenMark, string(c), line, line})
			i++
		default:
			return nil, syntaxError(name, line, "character %q is not supported", c)
		}
		lineStart = false
	}
	return append(tokens, token{tokenEnd, "", line, line}), nil
}

// directive gives a preprocessor line up to its end or its comment, and how many bytes that is. A comment sign inside a
// string does not count.
func directive(src string) (text string, n int) {
	quoted := false
	for n < len(src) && src[n] != '\n' {
		switch {
		case src[n] == '\\' && quoted && n+1 < len(src):
			n++ // the escaped character, perhaps a quote
		case src[n] == '"':
			quoted = !quoted
		case !quoted && strings.HasPrefix(src[n:], "/*"):
			return strings.TrimSpace(src[:n]), n
		}
		n++
	}
	n = min(n, len(src))
	return strings.TrimSpace(src[:n]), n
}
