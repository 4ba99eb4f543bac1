package main

import (
	"os"
	"path/filepath"
	"testing"
)

// Who has said how many sockets a connection has, in the environment or in NCCL's files, needs no advice about it.
func TestWhoHasSaidHowManySockets(t *testing.T) {
	home := t.TempDir()
	env := map[string]string{"HOME": home}
	r := runner{app: &app{getenv: func(name string) string { return env[name] }, sysroot: t.TempDir()}}
	if r.saysSockets() {
		t.Error("nobody has said it")
	}
	env["NCCL_NSOCKS_PERTHREAD"] = "4"
	if !r.saysSockets() {
		t.Error("not seen in the environment")
	}
	delete(env, "NCCL_NSOCKS_PERTHREAD")
	if err := os.WriteFile(filepath.Join(home, ".nccl.conf"), []byte("NCCL_SOCKET_NTHREADS=2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if !r.saysSockets() {
		t.Error("not seen in NCCL's file")
	}
}
