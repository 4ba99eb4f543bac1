package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	in := flag.String("in", "abi.h", "C header to read")
	out := flag.String("out", "abi_gen.go", "Go file of constants and structs to write")
	table := flag.String("table", "abi_gen_test.go", "Go test file of sizes and offsets to write")
	pkg := flag.String("package", "nccltuner", "name of the Go package")
	flag.Parse()
	if err := run(*in, *out, *table, *pkg); err != nil {
		fmt.Fprintln(os.Stderr, "abigen:", err)
		os.Exit(1)
	}
}

func run(in, out, table, pkg string) error {
	src, err := os.ReadFile(in)
	if err != nil {
		return fmt.Errorf("reading the header: %w", err)
	}
	code, test, err := generate(in, string(src), pkg)
	if err != nil {
		return err
	}
	if err := os.WriteFile(out, code, 0o644); err != nil {
		return fmt.Errorf("writing layouts: %w", err)
	}
	if err := os.WriteFile(table, test, 0o644); err != nil {
		return fmt.Errorf("writing the layout table: %w", err)
	}
	return nil
}

// generate gives the Go sources for one header. It is a pure function: the up-to-date test calls it.
func generate(name, src, pkg string) (code, test []byte, err error) {
	h, err := parse(name, src)
	if err != nil {
		return nil, nil, err
	}
	if code, err = emitCode(h, pkg); err != nil {
		return nil, nil, err
	}
	if test, err = emitTable(h, pkg); err != nil {
		return nil, nil, err
	}
	return code, test, nil
}
