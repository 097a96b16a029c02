//go:build !linux

package storetest

import "errors"

// startPostgres is for Linux only; elsewhere tests use the server that KICI_TEST_POSTGRES_URL names.
func startPostgres() (string, error) {
	return "", errors.New("set KICI_TEST_POSTGRES_URL: a private PostgreSQL is started on Linux only")
}

func stopPostgres() {}
