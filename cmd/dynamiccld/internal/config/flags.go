package config

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// flagValue holds a flag's text; it is parsed once, by Load, with the same rules as a file.
type flagValue struct {
	f    field
	text string
}

func (v *flagValue) String() string { return v.text }
func (v *flagValue) Type() string   { return v.f.kind }
func (v *flagValue) Set(s string) error {
	v.text = s
	return v.f.set(&Config{}, s)
}

// AddFlags adds a flag for every setting. The help shows the defaults of this host.
func AddFlags(flags *pflag.FlagSet, h Host) {
	defaults := Default(h)
	for _, f := range fields {
		flag := flags.VarPF(&flagValue{f, f.get(defaults)}, f.key, "", fmt.Sprintf("%s [%s]", f.usage, f.env()))
		if f.kind == "bool" {
			flag.NoOptDefVal = "true"
		}
		if f.get(defaults) == "false" {
			flag.DefValue = ""
		}
	}
}

// YAML writes the configuration as a file that Load reads, with the origin of each setting beside it.
func (l Loaded) YAML() string {
	var b strings.Builder
	for _, f := range fields {
		fmt.Fprintf(&b, "# %s\n%s: %s  # %s\n", f.usage, f.key, quote(f.get(l.Config), f.kind), l.Origin[f.key])
	}
	return b.String()
}

// Values lists the settings by key.
func (c Config) Values() map[string]string {
	m := make(map[string]string, len(fields))
	for _, f := range fields {
		m[f.key] = f.get(c)
	}
	return m
}

// quote writes what YAML could take for something else as a double-quoted string.
func quote(s, kind string) string {
	switch kind {
	case "bool", "epochs", "number":
		return s
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`, "\r", `\r`).Replace(s) + `"`
}
