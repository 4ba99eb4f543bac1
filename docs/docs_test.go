// Package docs holds pages for people, and the test that what they point at is there.
package docs

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// tree is what is read of the repository: paths from its root, with / between names.
type tree struct {
	text  map[string]string // of pages and sources
	paths map[string]bool   // of all files and folders
}

var sources = []string{".md", ".go", ".c", ".h", ".cc", ".cu", ".cuh", ".sh", ".py", ".mk"}

func readTree(t *testing.T) tree {
	t.Helper()
	tr := tree{map[string]string{}, map[string]bool{}}
	root := os.DirFS("..")
	err := fs.WalkDir(root, ".", func(p string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && p != "." && (e.Name() == ".git" || e.Name() == ".cache" || p == "bin" || p == "lib"): // what is built or fetched
			return fs.SkipDir
		}
		tr.paths[p] = true
		if e.Type().IsRegular() && (slices.Contains(sources, path.Ext(p)) || e.Name() == "Makefile" || path.Dir(p) == ".ci") {
			text, err := fs.ReadFile(root, p)
			tr.text[p] = string(text)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func (tr tree) pages() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(tr.text)), func(p string) bool { return path.Ext(p) != ".md" })
}

var (
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	code     = regexp.MustCompile("`[^`]*`")
	fences   = regexp.MustCompile("(?ms)^```.*?^```")
	scheme   = regexp.MustCompile(`^[a-z]+:`)
	heading  = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	named    = regexp.MustCompile(`<a id="([^"]+)"></a>`)
	notSlug  = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
	linkText = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// anchors are the places of a page that a link can name: headings as GitHub makes them to anchors, and those with a name of their own.
func anchors(page string) map[string]bool {
	page = fences.ReplaceAllString(page, "")
	found := map[string]bool{}
	for _, h := range heading.FindAllStringSubmatch(page, -1) {
		slug := notSlug.ReplaceAllString(strings.ToLower(linkText.ReplaceAllString(h[1], "$1")), "")
		slug = strings.ReplaceAll(strings.TrimSpace(slug), " ", "-")
		unique := slug
		for i := 1; found[unique]; i++ {
			unique = fmt.Sprintf("%s-%d", slug, i)
		}
		found[unique] = true
	}
	for _, n := range named.FindAllStringSubmatch(page, -1) {
		found[n[1]] = true
	}
	return found
}

// brokenLinks are the relative links of pages whose file or anchor is not there.
func (tr tree) brokenLinks() (broken []string, links int) {
	for _, p := range tr.pages() {
		text := code.ReplaceAllString(fences.ReplaceAllString(tr.text[p], ""), "")
		for _, l := range link.FindAllStringSubmatch(text, -1) {
			file, anchor, _ := strings.Cut(l[1], "#")
			if scheme.MatchString(l[1]) {
				continue
			}
			links++
			to := p
			if file != "" {
				to = path.Join(path.Dir(p), file)
			}
			if !tr.paths[to] || anchor != "" && !anchors(tr.text[to])[anchor] {
				broken = append(broken, p+": "+l[1])
			}
		}
	}
	return broken, links
}

var (
	row      = regexp.MustCompile(`(?m)^\| ([0-9.]+) \| \[[^\]]+\]\(([^)#]+)#([^)]+)\) \|`)
	decision = regexp.MustCompile(`<a id="decision-([0-9-]+)"></a>\n## ([0-9.]+)\.? `)
	number   = `[0-9]+(?:\.[0-9]+)?`
	cited    = regexp.MustCompile(`(?i)\bdecisions?\s+(` + number + `(?:(?:,| and| to| or)\s+` + number + `)*)`)
	digits   = regexp.MustCompile(number)
	newLine  = regexp.MustCompile(`\n\s*(?://|\*|#|>)*\s*`) // a citation may go on in the next line of a comment
)

// index gives the decisions that docs/design.md lists, each with where it is.
func (tr tree) index() map[string]string {
	all := map[string]string{}
	for _, r := range row.FindAllStringSubmatch(tr.text["docs/design.md"], -1) {
		all[r[1]] = path.Join("docs", r[2]) + "#" + r[3]
	}
	return all
}

// lostDecisions are decisions that the index has not, or has elsewhere, and citations of ones that are not there.
func (tr tree) lostDecisions() (lost []string, citations int) {
	index := tr.index()
	written := map[string]bool{}
	for _, p := range tr.pages() {
		for _, d := range decision.FindAllStringSubmatch(tr.text[p], -1) {
			n := strings.TrimSuffix(d[2], ".")
			written[n] = true
			if at := p + "#decision-" + d[1]; strings.ReplaceAll(d[1], "-", ".") != n || index[n] != at {
				lost = append(lost, fmt.Sprintf("%s: decision %s is in the index as %q", at, n, index[n]))
			}
		}
	}
	for _, n := range slices.Sorted(maps.Keys(index)) {
		if !written[n] {
			lost = append(lost, "docs/design.md: nobody has written decision "+n)
		}
	}
	for _, p := range slices.Sorted(maps.Keys(tr.text)) {
		if p == "docs/docs_test.go" { // it plants some
			continue
		}
		for _, c := range cited.FindAllStringSubmatch(newLine.ReplaceAllString(tr.text[p], " "), -1) {
			for _, n := range digits.FindAllString(c[1], -1) {
				citations++
				if index[n] == "" {
					lost = append(lost, fmt.Sprintf("%s cites decision %s", p, n))
				}
			}
		}
	}
	return lost, citations
}

var (
	testName   = regexp.MustCompile("`(Test[A-Z][A-Za-z0-9]*)`")
	figureName = regexp.MustCompile(`\b(?:gpu|heldout)-[a-z0-9.-]*[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[a-z0-9.-]*[a-z0-9])?`)
)

// notThere are tests and files of figures that pages name and nobody has.
func (tr tree) notThere() (missing []string, names int) {
	var code strings.Builder
	for p, text := range tr.text {
		if strings.HasSuffix(p, "_test.go") {
			code.WriteString(text)
		}
	}
	for _, p := range tr.pages() {
		for _, n := range testName.FindAllStringSubmatch(tr.text[p], -1) {
			names++
			if !strings.Contains(code.String(), "func "+n[1]+"(") {
				missing = append(missing, p+" names "+n[1])
			}
		}
		for _, n := range figureName.FindAllString(tr.text[p], -1) {
			names++
			if !tr.paths["docs/figures/"+n] && !tr.paths["docs/figures/"+n+".jsonl"] && !tr.paths["docs/figures/"+n+".csv"] {
				missing = append(missing, p+" names "+n)
			}
		}
	}
	return missing, names
}

func TestWhatPagesPointAtIsThere(t *testing.T) {
	tr := readTree(t)
	broken, links := tr.brokenLinks()
	lost, citations := tr.lostDecisions()
	missing, names := tr.notThere()
	for _, bad := range slices.Concat(broken, lost, missing) {
		t.Error(bad)
	}
	if len(tr.index()) < 32 || links < 100 || citations < 100 || names < 100 {
		t.Errorf("only %d decisions, %d links, %d citations and %d names of tests and figures were seen", len(tr.index()), links, citations, names)
	}
}

// Each planted mistake must be found, and nothing else.
func TestPlantedMistakesAreFound(t *testing.T) {
	const design = "# Design\n\n| | decision |\n| --- | --- |\n| 1 | [Files](design/a.md#decision-1) | x |\n| 2.1 | [Space](design/a.md#decision-2-1) | y |\n"
	const room = "# A room\n\n<a id=\"decision-1\"></a>\n## 1. Files, not `a` server\n\n<a id=\"decision-2-1\"></a>\n## 2.1 Space\n\n## Twice\n## Twice\n```\n## not a heading [no](link.md)\n```\n"
	for name, c := range map[string]struct{ path, text, want string }{
		"nothing":            {"README.md", "[a](docs/design.md) [b](docs/design/a.md#1-files-not-a-server) [c](#here) [d](https://x.org/y#z) [e](docs/design/a.md#twice-1) `[f](g)`\n## Here\n", ""},
		"a file":             {"README.md", "[a](docs/desing.md)", "README.md: docs/desing.md"},
		"a folder above":     {"docs/x.md", "[a](docs/design.md)", "docs/x.md: docs/design.md"},
		"an anchor":          {"README.md", "[a](docs/design/a.md#decision-3)", "README.md: docs/design/a.md#decision-3"},
		"an anchor here":     {"README.md", "[a](#there)\n## Here\n", "README.md: #there"},
		"a heading in code":  {"README.md", "[a](docs/design/a.md#not-a-heading-no)", "README.md: docs/design/a.md#not-a-heading-no"},
		"a third of two":     {"README.md", "[a](docs/design/a.md#twice-2)", "README.md: docs/design/a.md#twice-2"},
		"right citations":    {"x.go", "// decision 1, and (docs/design.md,\n// decisions 1 and\n// 2.1) of 7", ""},
		"a citation":         {"x.go", "// docs/design.md, decision 3", "x.go cites decision 3"},
		"one of several":     {"x.c", " * see decisions 1, 2.1 and 5.", "x.c cites decision 5"},
		"in the next line":   {"x.sh", "# (docs/design.md, decision\n# 12)", "x.sh cites decision 12"},
		"not in the index":   {"docs/design/b.md", "<a id=\"decision-9\"></a>\n## 9. More", "docs/design/b.md#decision-9: decision 9 is in the index as \"\""},
		"in two places":      {"docs/design/b.md", "<a id=\"decision-1\"></a>\n## 1. Files", "docs/design/b.md#decision-1: decision 1 is in the index as \"docs/design/a.md#decision-1\""},
		"under another name": {"docs/design/b.md", "<a id=\"decision-1\"></a>\n## 2.1 Space", "docs/design/b.md#decision-1: decision 2.1 is in the index as \"docs/design/a.md#decision-2-1\""},
		"a test":             {"README.md", "`TestThere`, `TestGone`", "README.md names TestGone"},
		"a figure":           {"README.md", "`gpu-x-2026-11-21`, gpu-x-2026-11-22", "README.md names gpu-x-2026-11-22"},
	} {
		tr := tree{map[string]string{"docs/design.md": design, "docs/design/a.md": room, "a_test.go": "func TestThere(t *testing.T) {"}, map[string]bool{"docs/figures/gpu-x-2026-11-21.jsonl": true}}
		tr.text[c.path] = c.text
		for p := range tr.text {
			tr.paths[filepath.ToSlash(p)] = true
		}
		broken, _ := tr.brokenLinks()
		lost, _ := tr.lostDecisions()
		missing, _ := tr.notThere()
		if got := strings.Join(slices.Concat(broken, lost, missing), "; "); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	gone := tree{map[string]string{"docs/design.md": design}, map[string]bool{"docs/design.md": true, "docs/design/a.md": true}}
	if lost, _ := gone.lostDecisions(); len(lost) != 2 {
		t.Errorf("decisions that nobody has written: %q", lost)
	}
}

// TestMakeHelp: `make help` lists every target that says what it is for.
func TestMakeHelp(t *testing.T) {
	text, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	listed, err := exec.Command("make", "-s", "--no-print-directory", "-C", "..", "help").Output()
	if err != nil {
		t.Fatal(err)
	}
	targets := regexp.MustCompile(`(?m)^([^\s:#]+):.*##`).FindAllStringSubmatch(string(text), -1)
	if len(targets) < 20 {
		t.Errorf("only %d targets say what they are for", len(targets))
	}
	for _, target := range targets {
		if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(target[1]) + `\s`).Match(listed) {
			t.Errorf("make help does not list %s", target[1])
		}
	}
}
