package doctor

import (
	"bufio"
	"os"
	"path/filepath"
	"strings"
)

// setting is a variable as NCCL sees it and where it comes from.
type setting struct{ value, origin string }

const fromEnvironment = "environment" // what is not has a file's path for its origin

// variables are those that decide about us, or about what is advised.
var variables = []string{"NCCL_TUNER_PLUGIN", "NCCL_PROFILER_PLUGIN", "NCCL_ALGO", "NCCL_PROTO", "NCCL_NET_PLUGIN", "NCCL_GIN_PLUGIN", "NCCL_RMA_PLUGIN", "NCCL_SET_STACK_SIZE", "NCCL_SYM_NOWIN_ENABLE", "NCCL_SOCKET_NTHREADS", "NCCL_NSOCKS_PERTHREAD"}

// NCCLSettings gives the variables that decide about us as NCCL sees them; one that is not set is not in the map.
func NCCLSettings(h Host) map[string]string {
	values := map[string]string{}
	for name, s := range environment(h) {
		values[name] = s.value
	}
	return values
}

// environment reads variables as NCCL does (src/misc/param.cc, 2.30.7): the environment first, then the file of
// NCCL_CONF_FILE or else ~/.nccl.conf, then /etc/nccl.conf; the first that sets a variable wins.
func environment(h Host) map[string]setting {
	env := map[string]setting{}
	for _, name := range variables {
		if v := h.Getenv(name); v != "" {
			env[name] = setting{v, fromEnvironment}
		}
	}
	user := h.Getenv("NCCL_CONF_FILE")
	if home := h.Getenv("HOME"); user == "" && home != "" {
		user = filepath.Join(home, ".nccl.conf")
	}
	for _, path := range []string{user, h.Root + "/etc/nccl.conf"} {
		if path != "" {
			readConf(path, env)
		}
	}
	return env
}

func readConf(path string, env map[string]setting) {
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return // NCCL passes over what is not there as well; a pipe could be waited for for ever, and what is read from it NCCL has no more
	}
	f, err := os.Open(path)
	if err != nil {
		return
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		name, value, found := strings.Cut(strings.TrimSuffix(lines.Text(), "\r"), "=")
		if _, set := env[name]; !found || set || strings.HasPrefix(name, "#") {
			continue
		}
		for _, known := range variables {
			if name == known {
				env[name] = setting{value, path}
			}
		}
	}
}

// checkForced looks for choices that the user made: they are respected, so nothing is tuned.
func checkForced(r *Report, env map[string]setting) {
	forced := false
	for _, name := range []string{"NCCL_ALGO", "NCCL_PROTO"} {
		if s, set := env[name]; set {
			forced = true
			r.warn("forced", name+"="+s.value+" ("+s.origin+") decides for NCCL: communicators of such ranks pass through", "unset "+name+" to have it tuned")
		}
	}
	if !forced {
		r.ok("forced", "NCCL_ALGO and NCCL_PROTO are not set")
	}
}
