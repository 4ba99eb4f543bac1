package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
)

// The file format of bbolt, v1.5.0 internal/common: page.go, meta.go, inode.go, bucket.go.
const (
	pageHeader   = 16 // id u64, flags u16, count u16, overflow u32
	metaSize     = 64
	leafElem     = 16 // flags u32, pos u32, ksize u32, vsize u32
	branchElem   = 16 // pos u32, ksize u32, pgid u64
	bucketHeader = 16 // root pgid u64, sequence u64

	pageBranch, pageLeaf, pageMeta, pageFreelist = 0x01, 0x02, 0x04, 0x10

	boltMagic    = 0xED0CDAED
	boltVersion  = 2
	noFreelist   = ^uint64(0)
	minPageSize  = 1 << 10
	maxPageSize  = 1 << 24
	freshPages   = 4  // pages of a file that bbolt has just begun
	maxTreeDepth = 64 // a tree of 2 keys a page and 2^64 keys is not deeper
)

// errUnborn: the file was being created when its creator died; nothing was ever stored in it.
var errUnborn = errors.New("a store whose creation was interrupted")

type boltMeta struct {
	pageSize uint64
	root     uint64
	freelist uint64
	pages    uint64 // high water mark: the first page id not in use
	txid     uint64
}

// verify walks everything that bbolt would follow, with plain reads and every number checked before use. After it
// returns nil bbolt neither faults nor panics on the file. ErrNotStore: it was never one of bbolt's files.
func verify(r io.ReaderAt, size int64) error {
	v := verifier{r: r, size: size, used: map[uint64]bool{}}
	meta, err := v.chooseMeta()
	if err != nil {
		return err
	}
	v.meta = meta
	if meta.pages < freshPages || meta.pages > uint64(size)/meta.pageSize {
		if meta.pages == freshPages && meta.txid <= 1 {
			return errUnborn
		}
		return corrupt("%d pages of %d bytes in a file of %d bytes", meta.pages, meta.pageSize, size)
	}
	v.used[0], v.used[1] = true, true
	if err := v.tree(meta.root, nil, nil, 0); err != nil {
		return err
	}
	return v.freelist()
}

func corrupt(format string, args ...any) error {
	return fmt.Errorf(format+": %w", append(args, ErrCorrupt)...)
}

type verifier struct {
	r    io.ReaderAt
	size int64
	meta boltMeta
	used map[uint64]bool // pages that the tree or the freelist holds
}

func (v *verifier) readAt(off int64, n int) []byte {
	if off < 0 || off >= v.size {
		return nil
	}
	b := make([]byte, min(int64(n), v.size-off))
	if _, err := v.r.ReadAt(b, off); err != nil {
		return nil
	}
	return b
}

// parseMeta gives the meta page at off. found: bbolt's magic is there, whatever else is wrong.
func (v *verifier) parseMeta(off int64) (m boltMeta, found bool, err error) {
	b := v.readAt(off, pageHeader+metaSize)
	if len(b) < pageHeader+4 || binary.LittleEndian.Uint32(b[pageHeader:]) != boltMagic {
		return m, false, corrupt("no meta page at offset %d", off)
	}
	if len(b) < pageHeader+metaSize {
		return m, true, corrupt("half a meta page at offset %d", off)
	}
	b = b[pageHeader:]
	sum := fnv.New64a()
	sum.Write(b[:metaSize-8])
	if sum.Sum64() != binary.LittleEndian.Uint64(b[56:]) {
		return m, true, corrupt("checksum of the meta page at offset %d", off)
	}
	if version := binary.LittleEndian.Uint32(b[4:]); version != boltVersion {
		return m, true, fmt.Errorf("bbolt file format %d, we read %d: %w", version, boltVersion, ErrNewerSchema)
	}
	m = boltMeta{
		pageSize: uint64(binary.LittleEndian.Uint32(b[8:])),
		root:     binary.LittleEndian.Uint64(b[16:]),
		freelist: binary.LittleEndian.Uint64(b[32:]),
		pages:    binary.LittleEndian.Uint64(b[40:]),
		txid:     binary.LittleEndian.Uint64(b[48:]),
	}
	if m.pageSize < minPageSize || m.pageSize > maxPageSize || m.pageSize&(m.pageSize-1) != 0 {
		return m, true, corrupt("page size %d", m.pageSize)
	}
	return m, true, nil
}

// chooseMeta takes the meta page that bbolt would take: the valid one with the higher transaction number.
func (v *verifier) chooseMeta() (boltMeta, error) {
	if len(v.readAt(0, 1)) == 0 {
		return boltMeta{}, corrupt("the file cannot be read")
	}
	m0, found, err0 := v.parseMeta(0)
	if err0 == nil {
		m1, _, err := v.parseMeta(int64(m0.pageSize))
		switch {
		case err == nil && m1.pageSize != m0.pageSize:
			return boltMeta{}, corrupt("meta pages with page sizes %d and %d", m0.pageSize, m1.pageSize)
		case err == nil && m1.txid > m0.txid:
			return m1, nil
		}
		return m0, nil
	}
	for size := int64(minPageSize); size <= maxPageSize; size *= 2 {
		m1, found1, err := v.parseMeta(size)
		if err == nil && int64(m1.pageSize) == size {
			return m1, nil
		}
		found = found || found1
	}
	switch {
	case errors.Is(err0, ErrNewerSchema):
		return boltMeta{}, err0
	case v.beginsLikeFresh():
		return boltMeta{}, errUnborn
	case found || v.allZero():
		return boltMeta{}, corrupt("no valid meta page (%v)", err0)
	}
	return boltMeta{}, fmt.Errorf("not a bbolt file: %w", ErrNotStore)
}

// beginsLikeFresh recognises a file that ends inside the first meta page that bbolt ever writes.
func (v *verifier) beginsLikeFresh() bool {
	fresh := make([]byte, pageHeader+8)
	binary.LittleEndian.PutUint16(fresh[8:], pageMeta)
	binary.LittleEndian.PutUint32(fresh[pageHeader:], boltMagic)
	binary.LittleEndian.PutUint32(fresh[pageHeader+4:], boltVersion)
	return v.size < pageHeader+metaSize && bytes.HasPrefix(v.readAt(0, pageHeader+metaSize), fresh[:min(v.size, int64(len(fresh)))])
}

// allZero is what file systems leave of a file that was written just before the power went.
func (v *verifier) allZero() bool {
	return len(bytes.Trim(v.readAt(0, 1<<16), "\x00")) == 0
}

// page reads one page with its overflow pages and claims them.
func (v *verifier) page(id uint64) ([]byte, error) {
	if id < 2 || id >= v.meta.pages {
		return nil, corrupt("page %d of %d", id, v.meta.pages)
	}
	off := int64(id * v.meta.pageSize)
	head := v.readAt(off, pageHeader)
	if len(head) < pageHeader || binary.LittleEndian.Uint64(head) != id {
		return nil, corrupt("page %d does not know its number", id)
	}
	last := id + uint64(binary.LittleEndian.Uint32(head[12:]))
	if last >= v.meta.pages {
		return nil, corrupt("page %d runs on to page %d of %d", id, last, v.meta.pages)
	}
	for i := id; i <= last; i++ {
		if v.used[i] {
			return nil, corrupt("page %d is used twice", i)
		}
		v.used[i] = true
	}
	b := v.readAt(off, int((last-id+1)*v.meta.pageSize))
	if uint64(len(b)) != (last-id+1)*v.meta.pageSize {
		return nil, corrupt("page %d cannot be read", id)
	}
	return b, nil
}

// tree checks a page and all below it: keys ascend, low is the first (nil: any), all are below high (nil: no bound).
func (v *verifier) tree(id uint64, low, high []byte, depth int) error {
	if depth > maxTreeDepth {
		return corrupt("page %d: the tree is too deep", id)
	}
	b, err := v.page(id)
	if err != nil {
		return err
	}
	return v.elements(b, fmt.Sprintf("page %d", id), low, high, depth)
}

// elements checks the content of a page; inline buckets carry such a page inside a value.
func (v *verifier) elements(b []byte, name string, low, high []byte, depth int) error {
	flags, count := binary.LittleEndian.Uint16(b[8:]), int(binary.LittleEndian.Uint16(b[10:]))
	if flags != pageLeaf && flags != pageBranch {
		return corrupt("%s: type %#x", name, flags)
	}
	if flags == pageBranch && count == 0 {
		return corrupt("%s: a branch without children", name)
	}
	if pageHeader+count*leafElem > len(b) { // both kinds of element are 16 bytes
		return corrupt("%s: %d elements", name, count)
	}
	var keys [][]byte
	next := uint64(pageHeader + count*leafElem)
	for i := range count {
		at := pageHeader + i*leafElem
		e := b[at:]
		pos, ksize, vsize := binary.LittleEndian.Uint32(e[4:]), binary.LittleEndian.Uint32(e[8:]), binary.LittleEndian.Uint32(e[12:])
		if flags == pageBranch {
			pos, ksize, vsize = binary.LittleEndian.Uint32(e), binary.LittleEndian.Uint32(e[4:]), 0
		}
		from := uint64(at) + uint64(pos)
		// bbolt writes elements without gaps; a key that swallows its neighbour would break the tree at the next write.
		if ksize == 0 || from != next || from+uint64(ksize)+uint64(vsize) > uint64(len(b)) {
			return corrupt("%s: element %d is not where it must be", name, i)
		}
		next = from + uint64(ksize) + uint64(vsize)
		key := b[from : from+uint64(ksize)]
		// A branch names the first key of its child exactly: bbolt finds a child's place in its parent by that.
		if i == 0 && low != nil && !bytes.Equal(key, low) || i > 0 && bytes.Compare(key, keys[i-1]) <= 0 ||
			high != nil && bytes.Compare(key, high) >= 0 {
			return corrupt("%s: key %d is out of order", name, i)
		}
		keys = append(keys, key)
		if flags == pageLeaf {
			value := b[from+uint64(ksize) : from+uint64(ksize)+uint64(vsize)]
			if err := v.leaf(binary.LittleEndian.Uint32(e), value, name, depth); err != nil {
				return err
			}
		}
	}
	if flags == pageLeaf {
		return nil
	}
	for i, key := range keys {
		below := high
		if i+1 < count {
			below = keys[i+1]
		}
		child := binary.LittleEndian.Uint64(b[pageHeader+i*branchElem+8:])
		if err := v.tree(child, key, below, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// leaf follows a value that is a bucket.
func (v *verifier) leaf(flags uint32, value []byte, name string, depth int) error {
	switch {
	case flags == 0:
		return nil
	case flags != 1 || len(value) < bucketHeader:
		return corrupt("%s: a bucket of %d bytes, flags %#x", name, len(value), flags)
	}
	if root := binary.LittleEndian.Uint64(value); root != 0 {
		return v.tree(root, nil, nil, depth+1)
	}
	inline := value[bucketHeader:]
	if len(inline) < pageHeader || binary.LittleEndian.Uint16(inline[8:]) != pageLeaf {
		return corrupt("%s: an inline bucket of %d bytes", name, len(value))
	}
	return v.elements(inline, name+", inline bucket", nil, nil, depth+1)
}

// freelist checks that free pages exist, once each, and belong to nothing else: bbolt would write over a page in use.
func (v *verifier) freelist() error {
	if v.meta.freelist == noFreelist {
		return nil
	}
	b, err := v.page(v.meta.freelist)
	if err != nil {
		return err
	}
	if flags := binary.LittleEndian.Uint16(b[8:]); flags != pageFreelist {
		return corrupt("page %d: type %#x, want the freelist", v.meta.freelist, flags)
	}
	count, ids := uint64(binary.LittleEndian.Uint16(b[10:])), b[pageHeader:]
	if count == 0xFFFF { // too many for the header: the first word is the count
		count, ids = binary.LittleEndian.Uint64(ids), ids[8:]
	}
	if count > uint64(len(ids)/8) {
		return corrupt("a freelist of %d pages", count)
	}
	for i := range count {
		id := binary.LittleEndian.Uint64(ids[i*8:])
		if id < 2 || id >= v.meta.pages || v.used[id] {
			return corrupt("page %d is on the freelist", id)
		}
		v.used[id] = true
	}
	return nil
}
