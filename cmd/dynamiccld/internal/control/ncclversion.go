package control

import (
	"fmt"
	"strconv"
	"strings"
)

// FormatNCCLVersion writes NCCL_VERSION's code as people do; "" when it is not known. From 2.9 on the code is
// major*10000 + minor*100 + patch, before that major*1000 + minor*100 + patch (NCCL_VERSION in nccl.h).
func FormatNCCLVersion(code int) string {
	switch {
	case code <= 0:
		return ""
	case code < 10000:
		return fmt.Sprintf("%d.%d.%d", code/1000, code/100%10, code%100)
	}
	return fmt.Sprintf("%d.%d.%d", code/10000, code/100%100, code%100)
}

// ParseNCCLVersion reads what FormatNCCLVersion writes; "" is 0, not known.
func ParseNCCLVersion(s string) (int, error) {
	if s == "" {
		return 0, nil
	}
	parts := strings.Split(s, ".")
	var n [3]int
	for i, p := range parts {
		v, err := strconv.ParseUint(p, 10, 16)
		if err != nil || len(parts) != 3 || v > 99 {
			return 0, fmt.Errorf("NCCL version %q is not MAJOR.MINOR.PATCH, like 2.30.7", s)
		}
		n[i] = int(v)
	}
	if n[0] < 2 || n[0] == 2 && n[1] < 9 {
		return 0, fmt.Errorf("NCCL version %s is older than 2.9, the first that a store knows", s)
	}
	return n[0]*10000 + n[1]*100 + n[2], nil
}
