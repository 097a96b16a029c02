package server_test

import (
	"testing"

	"kici/internal/server/servertest"
)

func TestMain(m *testing.M) { servertest.Main(m) }
