package main

import (
	"strconv"
	"strings"
)

// header is what abi.h says.
type header struct {
	consts  []constant
	structs []*structure
	values  map[string]uint64 // of integer constants, for array sizes
	byName  map[string]*structure
}

// constant is one #define. text is a Go literal.
type constant struct {
	cName, goName, text, doc string
	isString                 bool
}

// structure is one struct with its layout as the C compiler makes it.
type structure struct {
	cName, goName, doc string
	fields             []field
	size, align        uint64
}

type field struct {
	cName, goName, goType, doc string
	offset                     uint64
}

// scalars of the subset: C name to Go name and size.
var scalars = map[string]struct {
	goType string
	size   uint64
}{
	"uint8_t": {"uint8", 1}, "uint16_t": {"uint16", 2}, "uint32_t": {"uint32", 4}, "uint64_t": {"uint64", 8},
	"int8_t": {"int8", 1}, "int16_t": {"int16", 2}, "int32_t": {"int32", 4}, "int64_t": {"int64", 8},
}

// maxArray bounds one array dimension: a larger one is a slip of the pen.
const maxArray = 1 << 20

type parser struct {
	name    string
	tokens  []token
	at      int
	comment token // last comment skipped
	h       *header
	goNames map[string]int // line of first use
}

func parse(name, src string) (*header, error) {
	tokens, err := lex(name, src)
	if err != nil {
		return nil, err
	}
	p := &parser{
		name: name, tokens: tokens, goNames: map[string]int{},
		h: &header{values: map[string]uint64{}, byName: map[string]*structure{}},
	}
	guard, depth := "", 0
	for {
		t := p.next()
		switch {
		case t.kind == tokenEnd:
			if depth != 0 {
				return nil, p.fail(t, "#ifndef %s without #endif", guard)
			}
			return p.h, nil
		case t.kind == tokenDirective:
			words := strings.Fields(t.text)
			switch {
			case words[0] == "#ifndef" && len(words) == 2 && guard == "":
				guard, depth = words[1], 1
			case words[0] == "#endif" && len(words) == 1 && depth == 1:
				depth = 0
			case t.text == "#include <stdint.h>":
			case t.text == "#define "+guard && guard != "":
			case words[0] == "#define":
				if err := p.define(t); err != nil {
					return nil, err
				}
			default:
				return nil, p.fail(t, "directive %q is not supported", t.text)
			}
		case t.kind == tokenWord && t.text == "struct":
			if err := p.structure(t); err != nil {
				return nil, err
			}
		default:
			return nil, p.fail(t, "%q is not supported here: want struct or #define", t.text)
		}
	}
}

// next gives the next token that is no comment and remembers the comment before it.
func (p *parser) next() token {
	p.comment = token{}
	for {
		t := p.tokens[p.at]
		if t.kind != tokenEnd {
			p.at++
		}
		if t.kind != tokenComment {
			return t
		}
		p.comment = t
	}
}

func (p *parser) fail(t token, format string, args ...any) error {
	return syntaxError(p.name, t.line, format, args...)
}

func (p *parser) expect(text string) (token, error) {
	t := p.next()
	if t.text != text || t.kind == tokenComment {
		return t, p.fail(t, "%q where %q was expected", t.text, text)
	}
	return t, nil
}

// above gives the comment that ends on the line before t, with nothing in between.
func (p *parser) above(t token) string {
	if p.comment.kind == tokenComment && p.comment.endLine == t.line-1 {
		return cleanComment(p.comment.text)
	}
	return ""
}

// beside gives the comment that starts on the line of t, after it.
func (p *parser) beside(t token) string {
	if c := p.tokens[p.at]; c.kind == tokenComment && c.line == t.line {
		p.at++
		return cleanComment(c.text)
	}
	return ""
}

func cleanComment(text string) string {
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		lines[i] = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(l), "*"))
	}
	return strings.TrimSpace(strings.Join(lines, "\n"))
}

func (p *parser) define(t token) error {
	name, value, _ := strings.Cut(strings.TrimSpace(strings.TrimPrefix(t.text, "#define")), " ")
	value = strings.TrimSpace(value)
	if !strings.HasPrefix(name, "DYN_") || strings.ContainsFunc(name, func(r rune) bool { return r > 127 || !isWord(byte(r)) }) {
		return p.fail(t, "macro %q: only DYN_ names without arguments are supported", name)
	}
	c := constant{cName: name, goName: goName(strings.TrimPrefix(name, "DYN_")), text: value}
	if strings.HasPrefix(value, `"`) {
		if _, err := strconv.Unquote(value); err != nil {
			return p.fail(t, "string %s of %s is not supported", value, name)
		}
		c.isString = true
	} else {
		// Base 0 would take Go's underscores and binary; C's octal reads alike in neither way, so it is refused.
		v, err := strconv.ParseUint(value, 0, 64)
		if err != nil || strings.Contains(value, "_") || len(value) > 1 && value[0] == '0' && !strings.HasPrefix(value, "0x") {
			return p.fail(t, "value %q of %s: only decimal and 0x integers and strings are supported", value, name)
		}
		p.h.values[name] = v
	}
	c.doc = p.beside(t)
	p.h.consts = append(p.h.consts, c)
	return p.claim(t, c.goName)
}

// claim keeps two C names from becoming one Go name.
func (p *parser) claim(t token, name string) error {
	if line, taken := p.goNames[name]; taken {
		return p.fail(t, "Go name %s is taken by line %d", name, line)
	}
	p.goNames[name] = t.line
	return nil
}

func (p *parser) structure(t token) error {
	doc := p.above(t)
	name := p.next()
	if name.kind != tokenWord || !strings.HasPrefix(name.text, "dyn_") {
		return p.fail(name, "struct %q: the name must start with dyn_", name.text)
	}
	s := &structure{cName: name.text, goName: "ABI" + goName(strings.TrimPrefix(name.text, "dyn_")), doc: doc, align: 1}
	if _, err := p.expect("{"); err != nil {
		return err
	}
	for {
		t := p.next()
		if t.text == "}" {
			break
		}
		if err := p.field(s, t); err != nil {
			return err
		}
	}
	end, err := p.expect(";")
	if err != nil {
		return err
	}
	if len(s.fields) == 0 {
		return p.fail(end, "struct %s is empty", s.cName)
	}
	if rest := s.size % s.align; rest != 0 {
		return p.fail(end, "struct %s ends with %d unnamed bytes: name the padding", s.cName, s.align-rest)
	}
	p.h.structs = append(p.h.structs, s)
	p.h.byName[s.cName] = s
	return p.claim(name, s.goName)
}

func (p *parser) field(s *structure, t token) error {
	f := field{doc: p.above(t)}
	var size, align uint64
	if t.text == "struct" {
		t = p.next()
		inner := p.h.byName[t.text]
		if inner == nil {
			return p.fail(t, "struct %q is not defined above", t.text)
		}
		f.goType, size, align = inner.goName, inner.size, inner.align
	} else {
		scalar, known := scalars[t.text]
		if !known {
			return p.fail(t, "type %q is not supported: want a fixed-width integer or a struct", t.text)
		}
		f.goType, size, align = scalar.goType, scalar.size, scalar.size
	}
	name := p.next()
	if name.kind != tokenWord || name.text[0] <= '9' {
		return p.fail(name, "field name %q is not supported", name.text)
	}
	f.cName, f.goName = name.text, goName(name.text)
	t = p.next()
	dims := ""
	for ; t.text == "["; t = p.next() {
		n, err := p.dimension()
		if err != nil {
			return err
		}
		dims += "[" + strconv.FormatUint(n, 10) + "]"
		if size *= n; size > 1<<40 {
			return p.fail(t, "field %s is larger than any memory", f.cName)
		}
	}
	if t.text != ";" {
		return p.fail(t, "%q after field %s is not supported", t.text, f.cName)
	}
	f.goType = dims + f.goType
	if hole := s.size % align; hole != 0 {
		return p.fail(name, "%d unnamed bytes before field %s: name the padding", align-hole, f.cName)
	}
	for _, other := range s.fields {
		if other.goName == f.goName {
			return p.fail(name, "field %s exists twice", f.cName)
		}
	}
	if beside := p.beside(t); beside != "" {
		f.doc = strings.TrimSpace(f.doc + "\n" + beside)
	}
	f.offset = s.size
	s.size += size
	s.align = max(s.align, align)
	s.fields = append(s.fields, f)
	return nil
}

func (p *parser) dimension() (uint64, error) {
	t := p.next()
	n, known := p.h.values[t.text]
	if !known {
		v, err := strconv.ParseUint(t.text, 10, 64)
		if err != nil || t.text[0] == '0' { // C would read a leading zero as octal
			return 0, p.fail(t, "array size %q: want a number or a DYN_ integer defined above", t.text)
		}
		n = v
	}
	if n == 0 || n > maxArray { // 0: from a DYN_ integer
		return 0, p.fail(t, "array size %d: want 1 to %d", n, maxArray)
	}
	_, err := p.expect("]")
	return n, err
}
