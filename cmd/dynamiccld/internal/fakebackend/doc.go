// Package fakebackend is a daemon for tests of what people see: fixed answers over the real control socket.
package fakebackend
