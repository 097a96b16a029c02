package vault_test

import (
	"testing"

	"kici/internal/cli/clitest"
)

func TestMain(m *testing.M) { clitest.Main(m) }

func TestScripts(t *testing.T) { clitest.Scripts(t) }
