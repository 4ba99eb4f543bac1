package config

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// normalListen puts localhost before a lone port and refuses what net.Listen would refuse later with less help.
func normalListen(s string) (string, error) {
	if s == "" {
		return "", nil
	}
	if !strings.Contains(s, ":") {
		s = ":" + s
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return s, fmt.Errorf("%q is not HOST:PORT; write 9464, localhost:9464 or [::1]:9464", s)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return s, fmt.Errorf("%q: port %q is not a number from 0 to 65535", s, port)
	}
	if host == "" {
		host = "localhost"
	}
	return net.JoinHostPort(host, port), nil
}

// checkListen keeps the metrics on this machine unless the user says that others may see them.
func checkListen(listen string, anyone bool) error {
	if listen == "" || anyone {
		return nil
	}
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if ip, err := netip.ParseAddr(host); host == "localhost" || err == nil && ip.IsLoopback() {
		return nil
	}
	return fmt.Errorf("listen: %s can be reached from other machines; use localhost, or add --listen-any when that is meant", listen)
}
