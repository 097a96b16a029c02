package store

import (
	"fmt"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

func TestMigrationsAreNumberedWithoutGapOrTwin(t *testing.T) {
	steps, err := readMigrations(migrations)
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range steps {
		if m.version != i+1 {
			t.Fatalf("%s has the number %d where %d comes next", m.name, m.version, i+1)
		}
	}
}

func TestAMigrationHasTheNumberOfItsFile(t *testing.T) {
	folder := func(names ...string) fstest.MapFS {
		files := fstest.MapFS{}
		for _, name := range names {
			files["migrations/"+name] = &fstest.MapFile{Data: []byte("-- " + name)}
		}
		return files
	}
	steps, err := readMigrations(folder("0007_later.sql", "0002_second.sql", "0003_third.sql", "readme.txt"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range steps {
		got = append(got, fmt.Sprint(m.version, " ", m.name, " ", m.text))
	}
	want := []string{"2 migrations/0002_second.sql -- 0002_second.sql", "3 migrations/0003_third.sql -- 0003_third.sql",
		"7 migrations/0007_later.sql -- 0007_later.sql"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for _, wrong := range []string{"1_base.sql", "0001base.sql", "base.sql", "0000_base.sql", "-001_base.sql", "00001_base.sql"} {
		if _, err := readMigrations(folder(wrong)); err == nil {
			t.Errorf("%s counts as the name of a migration", wrong)
		}
	}
	if _, err := readMigrations(folder("0002_second.sql", "0002_twin.sql")); err == nil {
		t.Error("two migrations may have one number")
	}
}
