// Package demo shows the closed loop on one machine without a GPU: a real daemon, rank processes with the real plugin,
// and recorded measurements in place of a GPU's time. It keeps to a temporary folder of its own.
package demo
