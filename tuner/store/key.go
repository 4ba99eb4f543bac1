package store

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"dynamiccl/actions"
	"dynamiccl/state"
	"dynamiccl/tuner"
)

const (
	keyFields  = 8
	maxKeySize = 4096
)

// encodeGroup is the part of a key that is searched for: MACHINE/ARCH/RANKSr/NODESn/TRANSPORT/. The strings are escaped
// so that a slash only ever separates. The NCCL version comes after it, so the versions of one group lie side by side.
func encodeGroup(machine, arch string, shape state.Shape) string {
	return fmt.Sprintf("%s/%s/%dr/%dn/%s/", url.PathEscape(machine), url.PathEscape(arch), shape.Ranks, shape.Nodes,
		url.PathEscape(shape.Transport))
}

func encodePrefix(machine, arch string, ncclVersion int, shape state.Shape) string {
	return encodeGroup(machine, arch, shape) + strconv.Itoa(ncclVersion) + "/"
}

// encodeKey writes prefix, COLLECTIVE/LOG2BYTES. Collectives go by name: NCCL has renumbered them before.
func encodeKey(k tuner.Key) ([]byte, error) {
	if err := checkKey(k); err != nil {
		return nil, err
	}
	key := fmt.Sprintf("%s%s/%02d", encodePrefix(k.Machine, k.GPUArch, k.NCCLVersion, k.Shape), k.Bucket.Collective,
		k.Bucket.Log2Bytes)
	if len(key) > maxKeySize {
		return nil, fmt.Errorf("key of %d bytes, at most %d: %w", len(key), maxKeySize, ErrInvalid)
	}
	return []byte(key), nil
}

func checkKey(k tuner.Key) error {
	switch {
	case k.Bucket.Collective >= actions.NumCollectives || k.Bucket.Log2Bytes >= state.NumBuckets:
		return fmt.Errorf("collective %d, size bucket %d: %w", k.Bucket.Collective, k.Bucket.Log2Bytes, ErrInvalid)
	case k.Shape.Ranks < 1 || k.Shape.Nodes < 1:
		return fmt.Errorf("%d ranks on %d nodes: %w", k.Shape.Ranks, k.Shape.Nodes, ErrInvalid)
	case k.NCCLVersion < 0:
		return fmt.Errorf("NCCL version %d: %w", k.NCCLVersion, ErrInvalid)
	}
	return nil
}

// decodeKey reads what encodeKey writes, and nothing else: one key has one spelling.
func decodeKey(b []byte) (tuner.Key, error) {
	bad := func(what string) (tuner.Key, error) {
		return tuner.Key{}, fmt.Errorf("key %q: %s: %w", b, what, ErrCorrupt)
	}
	f := strings.Split(string(b), "/")
	if len(f) != keyFields {
		return bad("wrong number of fields")
	}
	var k tuner.Key
	var err [8]error
	k.Machine, err[0] = url.PathUnescape(f[0])
	k.GPUArch, err[1] = url.PathUnescape(f[1])
	k.Shape.Ranks, err[2] = strconv.Atoi(strings.TrimSuffix(f[2], "r"))
	k.Shape.Nodes, err[3] = strconv.Atoi(strings.TrimSuffix(f[3], "n"))
	k.Shape.Transport, err[4] = url.PathUnescape(f[4])
	k.NCCLVersion, err[5] = strconv.Atoi(f[5])
	k.Bucket.Collective, err[6] = actions.ParseCollective(f[6])
	log2, e := strconv.ParseUint(f[7], 10, 8)
	k.Bucket.Log2Bytes, err[7] = uint8(log2), e
	for i, e := range err {
		if e != nil {
			return bad(fmt.Sprintf("field %d: %v", i+1, e))
		}
	}
	if again, e := encodeKey(k); e != nil || string(again) != string(b) {
		return bad("not as we write it")
	}
	return k, nil
}
