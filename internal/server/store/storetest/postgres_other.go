//go:build !linux

package storetest

import "fmt"

// startPostgres is for Linux only; elsewhere tests use the server that KICI_TEST_POSTGRES_URL names.
func startPostgres() (string, error) {
	return "", fmt.Errorf("%w: set KICI_TEST_POSTGRES_URL, a private one is started on Linux only", errAbsent)
}

func stopPostgres() {}
