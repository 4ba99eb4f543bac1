package daemon

import "slices"

// mostKept is how many findings, and how many alarms, people can look back on.
const mostKept = 256

// kept are the newest of what comes.
type kept[T any] struct {
	all  []T // a ring once it is full; the oldest is at next then
	next int
}

func (k *kept[T]) add(one T) {
	if len(k.all) < mostKept {
		k.all = append(k.all, one)
		return
	}
	k.all[k.next] = one
	k.next = (k.next + 1) % mostKept
}

// list is a copy, oldest first.
func (k *kept[T]) list() []T { return slices.Concat(k.all[k.next:], k.all[:k.next]) }
