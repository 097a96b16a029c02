package logs

import (
	"testing"

	"kici/internal/server/store/storetest"
)

func TestMain(m *testing.M) { storetest.Main(m) }
