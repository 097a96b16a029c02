package capacity

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"kici/internal/core/label"
)

// example are the pools of an operator with a container scaler and one for arm64, on an x64 server.
func example() []Pool {
	return []Pool{
		Scaler{Name: "ct", Backend: "container", Sets: [][]string{{"linux", "container"}}}.Pool("linux", "x64"),
		Scaler{Name: "arm", Backend: "container", Platform: &Platform{"linux", "arm64"}, Sets: [][]string{{"linux", "arm"}}}.Pool("linux", "x64"),
		Scaler{Name: "mixed", Backend: "bare-metal", Sets: [][]string{{"Darwin"}, {"linux", "fast"}}}.Pool("linux", "x64"),
	}
}

func TestJobsFindTheirPool(t *testing.T) {
	tests := []struct {
		name            string
		labels, exclude []string
		pool            string // "" for none
		set             int
	}{
		{"the gate of arm64 keeps plain jobs out", []string{"linux"}, nil, "ct", 0},
		{"asked for by its token", []string{"linux", "arm64"}, nil, "arm", 0},
		{"asked for by another name", []string{"linux", "kici:arch:arm64"}, nil, "arm", 0},
		{"nobody has it", []string{"windows"}, nil, "", 0},
		{"one gated set does not close its sibling", []string{"fast"}, nil, "mixed", 1},
		{"a set that names a platform by an alias serves its token", []string{"macos"}, nil, "mixed", 0},
		{"excluded by what the system adds", []string{"linux"}, []string{"kici:agent:container"}, "mixed", 1},
		{"asks for a role", []string{"kici:role:builder"}, nil, "ct", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, set, ok := Choose(example(), tt.labels, tt.exclude)
			if !ok && tt.pool == "" {
				return
			}
			if got := example()[p].Name; !ok || got != tt.pool || set != tt.set {
				t.Errorf("%s %d, %v; want %s %d", got, set, ok, tt.pool, tt.set)
			}
		})
	}
}

func TestPoolSaysWhatItsAgentsPresent(t *testing.T) {
	roles := []string{"builder"}
	got := Scaler{
		Name: "w", Backend: "firecracker", Platform: &Platform{"windows", "arm64"}, Roles: &roles,
		Mandatory: []string{"GPU", "Windows"}, Sets: [][]string{{"GPU", "Windows", "gpu"}},
	}.Pool("linux", "x64")
	origin := []string{"kici:agent:firecracker", "kici:scaler:w", "kici:role:builder"}
	want := Pool{Name: "w", Sets: []Set{{
		Labels: slices.Concat([]string{"GPU", "Windows", "gpu", "kici:os:windows", "kici:os:win32", "kici:arch:arm64"}, origin, []string{"windows", "arm64"}),
		Gate:   []string{"GPU", "Windows", "arm64"},
		Agent:  slices.Concat([]string{"GPU", "Windows", "gpu", "arm64"}, origin),
	}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestNoPoolStartsTheAgentOfAPin(t *testing.T) {
	if Routable(label.Selector{Labels: []string{"linux"}, Pin: "host-1"}, example()) {
		t.Error("a pinned job counts as routable")
	}
	if !Routable(label.Selector{Patterns: []label.Matcher{{Kind: label.Regex, Source: "^gpu"}}}, example()) {
		t.Error("a job that asks by patterns alone does not count as one that asks for nothing")
	}
}

func TestScalerNamesItsUndeclaredPlatforms(t *testing.T) {
	s := Scaler{Name: "p", Backend: "container", Sets: [][]string{{"windows", "dotnet"}, {"AArch64", "windows"}}}
	if diff := cmp.Diff([]string{"windows", "AArch64"}, s.Undeclared()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([][]string{{"windows", "dotnet"}, {"AArch64", "windows"}}, s.Sets); diff != "" {
		t.Errorf("asking changed the scaler: %s", diff)
	}
	s.Platform = &Platform{"windows", "x64"}
	if got := s.Undeclared(); len(got) > 0 {
		t.Errorf("declared, and still named: %v", got)
	}
}

func TestOverlapReadsAsASentence(t *testing.T) {
	got := Overlap{Key: "docker,linux", First: "a", Second: "b"}.Error()
	if want := `Label set [docker,linux] overlaps between scalers "a" and "b"`; got != want {
		t.Errorf("%s; want %s", got, want)
	}
}

var words = []string{"linux", "Linux", "gpu", "GPU", "windows", "win32", "Darwin", "macos", "arm64", "aarch64", "fast"}

func genScaler(t *rapid.T) Scaler {
	s := Scaler{
		Name:    rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name"),
		Backend: rapid.SampledFrom([]string{"container", "bare-metal", "firecracker"}).Draw(t, "backend"),
		Sets:    rapid.SliceOfN(rapid.SliceOfN(rapid.SampledFrom(words), 1, 4), 1, 3).Draw(t, "sets"),
	}
	if rapid.Bool().Draw(t, "declares") {
		s.Platform = &Platform{rapid.SampledFrom([]string{"linux", "macos", "windows"}).Draw(t, "os"), rapid.SampledFrom([]string{"x64", "arm64"}).Draw(t, "arch")}
	}
	if rapid.Bool().Draw(t, "restricts") {
		roles := rapid.SliceOfN(rapid.SampledFrom([]string{"builder", "init-runner", "all"}), 0, 2).Draw(t, "roles")
		s.Roles = &roles
	}
	// The configuration demands that every set holds the scaler's own gate.
	if rapid.Bool().Draw(t, "reserved") {
		s.Mandatory = []string{"gpu"}
		for i := range s.Sets {
			s.Sets[i] = append(s.Sets[i], "GPU")
		}
	}
	return s
}

// TestWhatIsRoutedCanBeTaken says that a pool is only chosen when the agent that it then starts may take the job, and
// that no smaller one that could was passed over. Otherwise agents would be started for nothing, again and again.
func TestWhatIsRoutedCanBeTaken(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		host := rapid.SampledFrom([][2]string{{"linux", "x64"}, {"linux", "arm64"}, {"darwin", "arm64"}, {"freebsd", "x64"}}).Draw(t, "host")
		var scalers []Scaler
		var pools []Pool
		for range rapid.IntRange(1, 3).Draw(t, "scalers") {
			s := genScaler(t)
			scalers, pools = append(scalers, s), append(pools, s.Pool(host[0], host[1]))
		}
		asked := append([]string{"kici:os:linux", "kici:os:win32", "kici:arch:arm64", "kici:agent:container", "kici:role:builder"}, words...)
		job := label.Selector{
			Labels:  rapid.SliceOfN(rapid.SampledFrom(asked), 1, 3).Draw(t, "labels"),
			Exclude: rapid.SliceOfN(rapid.SampledFrom(asked), 0, 1).Draw(t, "exclude"),
		}
		fits := func(p, s int) bool {
			set := pools[p].Sets[s]
			return job.Matches(label.Agent{Labels: slices.Concat(set.Agent, scalers[p].machine(host[0], host[1])), Mandatory: set.Gate})
		}
		chosen, at, ok := Choose(pools, job.Labels, job.Exclude)
		if ok && !fits(chosen, at) {
			t.Fatalf("set %+v is chosen, and its agent may not take %+v", pools[chosen].Sets[at], job)
		}
		for p := range pools {
			for s, set := range pools[p].Sets {
				if !fits(p, s) {
					continue
				}
				if size := len(label.Folded(set.Labels)); !ok || size < len(label.Folded(pools[chosen].Sets[at].Labels)) {
					t.Fatalf("set %+v is passed over for %+v", set, job)
				}
			}
		}
	})
}

func TestOverlapsNameEveryLaterOwnerOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var scalers []Scaler
		for range rapid.IntRange(0, 4).Draw(t, "scalers") {
			scalers = append(scalers, genScaler(t))
		}
		found := Overlaps(scalers)
		uses := 0
		owner := map[string]string{}
		for _, s := range scalers {
			for _, set := range s.Sets {
				key := label.SetKey(rapid.Permutation(set).Draw(t, "order"))
				if owner[key] == "" {
					owner[key] = s.Name
				}
				if owner[key] == s.Name {
					continue
				}
				if uses++; !slices.Contains(found, Overlap{Key: key, First: owner[key], Second: s.Name}) {
					t.Fatalf("%s of %s is not found", key, s.Name)
				}
			}
		}
		if len(found) != uses {
			t.Fatalf("%d overlaps for %d uses", len(found), uses)
		}
	})
}
