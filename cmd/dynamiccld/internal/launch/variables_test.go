package launch

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func names(s Setup) string {
	var all []string
	for _, v := range s.Variables {
		all = append(all, v.Name)
	}
	return strings.Join(all, " ")
}

func TestPrepare(t *testing.T) {
	plugin := Plugin{"/l/" + tunerFile, "/l/" + profilerFile, "/l/" + preloadFile}
	missing := errors.New("not there")
	for _, tc := range []struct {
		name  string
		wish  Wish
		set   string
		notes int
		why   string
	}{
		{"all", Wish{Plugin: plugin}, "DYNAMICCL_DIR NCCL_TUNER_PLUGIN NCCL_PROFILER_PLUGIN LD_PRELOAD NCCL_SET_STACK_SIZE NCCL_SYM_NOWIN_ENABLE", 0, ""},
		{"switches", Wish{Plugin: plugin, NoExplore: true, FixedNumerics: true},
			"DYNAMICCL_DIR NCCL_TUNER_PLUGIN NCCL_PROFILER_PLUGIN LD_PRELOAD NCCL_SET_STACK_SIZE DYNAMICCL_NO_EXPLORE DYNAMICCL_FIXED_NUMERICS", 0, ""},
		{"fixed numerics and device kernels", Wish{Plugin: plugin, FixedNumerics: true, User: map[string]string{"NCCL_SYM_NOWIN_ENABLE": "1"}},
			"DYNAMICCL_DIR NCCL_TUNER_PLUGIN NCCL_PROFILER_PLUGIN LD_PRELOAD NCCL_SET_STACK_SIZE DYNAMICCL_FIXED_NUMERICS", 1, ""},
		{"fixed numerics within a run", Wish{Plugin: plugin, FixedNumerics: true, HandedOn: true, User: map[string]string{"NCCL_SYM_NOWIN_ENABLE": "1"}},
			"DYNAMICCL_DIR NCCL_TUNER_PLUGIN NCCL_PROFILER_PLUGIN LD_PRELOAD NCCL_SET_STACK_SIZE DYNAMICCL_FIXED_NUMERICS NCCL_SYM_NOWIN_ENABLE", 0, ""},
		{"protocol within a run", Wish{Plugin: plugin, HandedOn: true, User: map[string]string{"NCCL_PROTO": "LL", "NCCL_SYM_NOWIN_ENABLE": "1"}},
			"DYNAMICCL_DIR NCCL_TUNER_PLUGIN NCCL_PROFILER_PLUGIN LD_PRELOAD NCCL_SET_STACK_SIZE NCCL_SYM_NOWIN_ENABLE", 0, "NCCL_PROTO=LL is yours"},
		{"within a run", Wish{Plugin: plugin, HandedOn: true, Preload: "/l/" + preloadFile, User: map[string]string{"NCCL_TUNER_PLUGIN": "dynamiccl", "NCCL_PROFILER_PLUGIN": "dynamiccl", "NCCL_SYM_NOWIN_ENABLE": "1"}},
			"DYNAMICCL_DIR NCCL_SET_STACK_SIZE", 0, ""},
		{"missing", Wish{PluginErr: missing}, "", 0, "running as plain NCCL: not there"},
		{"missing, but the user knows one", Wish{PluginErr: missing, User: map[string]string{"NCCL_TUNER_PLUGIN": "/opt/" + tunerFile}},
			"DYNAMICCL_DIR NCCL_SET_STACK_SIZE", 1, ""},
		{"both known to the user", Wish{PluginErr: missing, User: map[string]string{"NCCL_TUNER_PLUGIN": "dynamiccl", "NCCL_PROFILER_PLUGIN": "dynamiccl"}},
			"DYNAMICCL_DIR NCCL_SET_STACK_SIZE", 1, ""},
		{"all known to the user", Wish{Plugin: plugin, Preload: "/l/" + preloadFile, User: map[string]string{"NCCL_TUNER_PLUGIN": "dynamiccl", "NCCL_PROFILER_PLUGIN": "dynamiccl"}},
			"DYNAMICCL_DIR NCCL_SET_STACK_SIZE NCCL_SYM_NOWIN_ENABLE", 0, ""},
		{"another tuner", Wish{Plugin: plugin, User: map[string]string{"NCCL_TUNER_PLUGIN": "x"}}, "", 0, "NCCL_TUNER_PLUGIN=x is yours"},
		{"no profiler", Wish{Plugin: plugin, User: map[string]string{"NCCL_PROFILER_PLUGIN": "none"}},
			"DYNAMICCL_DIR NCCL_TUNER_PLUGIN NCCL_SET_STACK_SIZE", 1, ""},
		{"another stack", Wish{Plugin: plugin, User: map[string]string{"NCCL_SET_STACK_SIZE": "0"}},
			"DYNAMICCL_DIR NCCL_TUNER_PLUGIN NCCL_PROFILER_PLUGIN LD_PRELOAD NCCL_SYM_NOWIN_ENABLE", 1, ""},
		{"protocol", Wish{Plugin: plugin, User: map[string]string{"NCCL_PROTO": "LL"}},
			"DYNAMICCL_DIR NCCL_TUNER_PLUGIN NCCL_PROFILER_PLUGIN LD_PRELOAD NCCL_SET_STACK_SIZE", 0, "NCCL_PROTO=LL is yours"},
	} {
		got := Prepare(tc.wish)
		if names(got) != tc.set || len(got.Notes) != tc.notes || !strings.HasPrefix(got.Why, tc.why) || (got.Why == "") != (tc.why == "") {
			t.Errorf("%s: sets %s, notes %q, why %q", tc.name, names(got), got.Notes, got.Why)
		}
		for _, note := range append(got.Notes, got.Why) {
			if strings.Contains(note, "\n") || strings.Contains(note, "%!") {
				t.Errorf("%s: %q", tc.name, note)
			}
		}
	}
}

// The user's own preloads stay, behind ours; where ours cannot be had one line says what that means.
func TestPrepareLDPreload(t *testing.T) {
	at := func(path string) Plugin { return Plugin{"/l/" + tunerFile, "/l/" + profilerFile, path} }
	ours := "/l/" + preloadFile
	for _, tc := range []struct {
		name  string
		wish  Wish
		value string // "": not set
		note  string // "": none
	}{
		{"alone", Wish{Plugin: at(ours)}, ours, ""},
		{"before the user's", Wish{Plugin: at(ours), Preload: "/u/a.so /u/b.so"}, ours + ":/u/a.so:/u/b.so", ""},
		{"behind sanitizers", Wish{Plugin: at(ours), Preload: "/lib/libasan.so.8 /u/b.so"}, "/lib/libasan.so.8:" + ours + ":/u/b.so", ""},
		{"nothing but a sanitizer", Wish{Plugin: at(ours), Preload: "/llvm/libclang_rt.asan-x86_64.so"}, "/llvm/libclang_rt.asan-x86_64.so:" + ours, ""},
		{"a sanitizer that the user has behind", Wish{Plugin: at(ours), Preload: "/u/b.so:libasan.so.8"}, ours + ":/u/b.so:libasan.so.8", ""},
		{"one that takes all for its own", Wish{Plugin: at(ours), Preload: "/t/torch_memory_saver_hook_mode_preload.abi3.so"}, "",
			"LD_PRELOAD=/t/torch_memory_saver_hook_mode_preload.abi3.so is yours and stays alone"},
		{"one that takes all, with ours", Wish{Plugin: at(ours), Preload: ours + ":/t/torch_memory_saver_hook_mode_preload.abi3.so"}, "", ""},
		{"one that can do with others", Wish{Plugin: at(ours), Preload: "/u/a.so:/t/torch_memory_saver_hook_mode_preload.abi3.so"}, ours + ":/u/a.so:/t/torch_memory_saver_hook_mode_preload.abi3.so", ""},
		{"there already", Wish{Plugin: at(ours), Preload: "/u/a.so:/elsewhere/" + preloadFile}, "", "another build's /elsewhere/libdynamiccl.so"},
		{"not needed", Wish{Plugin: at(ours), TimesItself: true}, ours, ""},
		{"missing", Wish{Plugin: at("")}, "", preloadFile + " is not beside the plugin"},
		{"missing and not needed", Wish{Plugin: at(""), TimesItself: true}, "", ""},
		{"a space", Wish{Plugin: at("/my l/" + preloadFile)}, "", "no path with a space or colon"},
		{"our profiler by the user", Wish{Plugin: at(ours), User: map[string]string{profilerVariable: "dynamiccl"}}, ours, ""},
		{"another profiler", Wish{Plugin: at(ours), User: map[string]string{profilerVariable: "x"}}, "", "nothing is measured"},
	} {
		s := Prepare(tc.wish)
		var value string
		for _, v := range s.Variables {
			if v.Name == preloadVariable {
				value = v.Value
			}
		}
		said := strings.Join(s.Notes, "|")
		if value != tc.value || !strings.Contains(said, tc.note) || (said == "") != (tc.note == "") {
			t.Errorf("%s: LD_PRELOAD=%s, notes %q", tc.name, value, said)
		}
	}
}

func TestEnvironReplaces(t *testing.T) {
	before := []string{"A=1", "B=2", "A=3", "AB=4"}
	got := Environ(before, []Variable{{"A", "x"}, {"C", "="}})
	if want := []string{"B=2", "AB=4", "A=x", "C=="}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if before[0] != "A=1" || len(before) != 4 {
		t.Errorf("the caller's own is now %q", before)
	}
}

// What Export writes is what a shell understands, and without `export` what readers of ~/.deepspeed_env do, which keep quotes.
func TestExportSurvivesAShell(t *testing.T) {
	for _, value := range []string{"plain", "", "it's", `a"b\c`, "$HOME `id` $(id)", "two\nlines", "''", "*"} {
		cmd := exec.Command("sh", "-c", `eval "$1"; printf %s "$X"`, "sh", Export([]Variable{{"X", value}}))
		out, err := cmd.Output()
		if err != nil || string(out) != value {
			t.Errorf("%q came back as %q, %v", value, out, err)
		}
	}
	if got := Export([]Variable{{"LD_PRELOAD", "/opt/lib-1.2/libdynamiccl.so:/a_b.so"}}); got != "export LD_PRELOAD=/opt/lib-1.2/libdynamiccl.so:/a_b.so\n" {
		t.Errorf("%q", got)
	}
}

func TestFindPlugin(t *testing.T) {
	root := t.TempDir()
	put := func(dir string, names ...string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(root, dir), 0o700); err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if err := os.WriteFile(filepath.Join(root, dir, name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	exe := filepath.Join(root, "bin", "dynamiccld")
	put("lib", tunerFile) // half of it is none
	if _, err := FindPlugin("", exe); err == nil || !strings.Contains(err.Error(), "--plugin-dir") || !strings.Contains(err.Error(), filepath.Join(root, "lib")) {
		t.Errorf("half a plugin: %v", err)
	}
	put("bin", tunerFile, profilerFile)
	if p, err := FindPlugin("", exe); err != nil || p.Tuner != filepath.Join(root, "bin", tunerFile) {
		t.Errorf("beside: %+v, %v", p, err)
	}
	put("lib", profilerFile)
	if p, err := FindPlugin("", exe); err != nil || p.Preload != "" {
		t.Errorf("no preload library: %+v, %v", p, err)
	}
	put("lib", preloadFile)
	if p, err := FindPlugin("", exe); err != nil || p.Preload != filepath.Join(root, "lib", preloadFile) {
		t.Errorf("the preload library: %+v, %v", p, err)
	}
	if p, err := FindPlugin("", exe); err != nil || p.Profiler != filepath.Join(root, "lib", tunerFile) {
		t.Errorf("two copies, of which each would know half: %+v, %v", p, err)
	}
	profiler := filepath.Join(root, "lib", profilerFile)
	if err := errors.Join(os.Remove(profiler), os.Symlink(tunerFile, profiler)); err != nil {
		t.Fatal(err)
	}
	if p, err := FindPlugin("", exe); err != nil || p.Profiler != profiler {
		t.Errorf("../lib: %+v, %v", p, err)
	}
	if _, err := FindPlugin(filepath.Join(root, "nowhere"), exe); err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("a named folder without it: %v", err)
	}
	t.Chdir(root)
	if p, err := FindPlugin("lib", exe); err != nil || !filepath.IsAbs(p.Tuner) {
		t.Errorf("a relative folder: %+v, %v", p, err)
	}
}

// What Prepare sets, and what a user may have of it, is not in a bare environment; what is the user's own stays.
func TestBare(t *testing.T) {
	own := []string{"PATH=/bin", "NCCL_DEBUG=INFO", "NCCL_SYM_NOWIN_ENABLE=0", "LD_PRELOAD=/a.so", "NCCL_PROFILER_PLUGIN=/theirs.so"}
	if got := Bare(own); !slices.Equal(got, own) {
		t.Errorf("%v", got)
	}
	plugin := Plugin{"/l/libnccl-tuner-dynamiccl.so", "/l/libnccl-profiler-dynamiccl.so", "/l/libdynamiccl.so"}
	for _, preload := range []string{"", "/a.so:/b.so"} {
		user := []string{"PATH=/bin"}
		if preload != "" {
			user = append(user, "LD_PRELOAD="+preload)
		}
		setup := Prepare(Wish{Dir: "/d", NoExplore: true, Plugin: plugin, User: map[string]string{}, Preload: preload})
		with := Environ(user, append(setup.Variables, Variable{RunVariable, "1"}))
		if len(with) < 8 {
			t.Fatalf("%v", with)
		}
		if got := Bare(with); !slices.Equal(got, user) {
			t.Errorf("of %v there is left %v", with, got)
		}
	}
	if got := Bare([]string{"NCCL_TUNER_PLUGIN=dynamiccl", "DYNAMICCL_DIR=/d", "DYNAMICCL_FIXED_NUMERICS=true"}); len(got) != 0 {
		t.Errorf("%v", got)
	}
}

// A program that is said to run as plain NCCL loads nothing of ours, whoever had put it there; another's plugin stays with what is beside it.
func TestUntuned(t *testing.T) {
	lib := "/old/libdynamiccl.so"
	got := Untuned([]string{"NCCL_TUNER_PLUGIN=/old/libnccl-tuner-dynamiccl.so", "LD_PRELOAD=" + lib + ":/a.so", "DYNAMICCL_DIR=/d", "NCCL_SYM_NOWIN_ENABLE=1"})
	if want := []string{"LD_PRELOAD=/a.so", "DYNAMICCL_DIR=/d"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	theirs := []string{"LD_PRELOAD=" + lib, "NCCL_TUNER_PLUGIN=theirs", "NCCL_SYM_NOWIN_ENABLE=1"}
	if got := Untuned(theirs); !slices.Equal(got, theirs) {
		t.Errorf("%v, want %v", got, theirs)
	}
}

// NCCL_SYM_NOWIN_ENABLE of a user who has nothing of ours is his.
func TestHandedOn(t *testing.T) {
	for environ, want := range map[string]bool{"": false, "NCCL_SYM_NOWIN_ENABLE=1": false, "NCCL_TUNER_PLUGIN=dynamiccl NCCL_SYM_NOWIN_ENABLE=0": false,
		"NCCL_TUNER_PLUGIN=theirs NCCL_SYM_NOWIN_ENABLE=1": false, "NCCL_SYM_NOWIN_ENABLE=1 NCCL_TUNER_PLUGIN=dynamiccl": true} {
		if got := HandedOn(strings.Fields(environ)); got != want {
			t.Errorf("%s: %v", environ, got)
		}
		if left := Untuned([]string{"NCCL_SYM_NOWIN_ENABLE=1"}); len(left) != 1 {
			t.Errorf("the user's own is gone: %v", left)
		}
	}
}

// Libraries of another build stay, and it is said in one line; those of this one, whatever they are called by, are nothing to speak of.
func TestOtherBuild(t *testing.T) {
	here, there := t.TempDir(), t.TempDir()
	for _, dir := range []string{here, there} {
		for _, name := range []string{tunerFile, profilerFile, preloadFile} {
			if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	again := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(here, again); err != nil {
		t.Fatal(err)
	}
	plugin := Plugin{filepath.Join(here, tunerFile), filepath.Join(here, profilerFile), filepath.Join(here, preloadFile)}
	for _, tc := range []struct {
		name, dir string
		says      string // "": nothing
	}{
		{"this build", here, ""},
		{"this build by a link", again, ""},
		{"another", there, "(NCCL_TUNER_PLUGIN, NCCL_PROFILER_PLUGIN, LD_PRELOAD): another build's " + filepath.Join(there, tunerFile) + ", not this program's " + here},
		{"one that is gone", "/gone", "another build's /gone/" + tunerFile + ", which is not there, not"},
		{"bare names", "", ""},
	} {
		user := map[string]string{tunerVariable: filepath.Join(tc.dir, tunerFile), profilerVariable: filepath.Join(tc.dir, profilerFile)}
		setup := Prepare(Wish{Dir: "/d", Plugin: plugin, User: user, Preload: "/a.so:" + filepath.Join(tc.dir, preloadFile)})
		said := strings.Join(setup.Notes, "\n")
		if !strings.Contains(said, tc.says) || (said == "") != (tc.says == "") || len(setup.Notes) > 1 {
			t.Errorf("%s: %q", tc.name, setup.Notes)
		}
		for _, v := range setup.Variables {
			if v.Name == tunerVariable || v.Name == profilerVariable || v.Name == preloadVariable {
				t.Errorf("%s: %s=%s, and it was set", tc.name, v.Name, v.Value)
			}
		}
	}
}
