package author

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"kici/internal/cli/console"
	"kici/internal/core/attest"
)

// verification is a bundle that somebody has, and what it must be.
type verification struct {
	console.Process
	keys     string // file or URL of the issuer's key set, "" for where the issuer publishes it
	issuer   string
	audience string
	file     string
	digest   string // algorithm:hex
	strict   bool
	json     bool
}

// VerifyAttestationCommand is kici verify-attestation.
func VerifyAttestationCommand(p console.Process) *cobra.Command {
	v := &verification{Process: p}
	cmd := &cobra.Command{
		Use:   "verify-attestation BUNDLE",
		Short: "Check which run made a file, by the bundle that it attested it with",
		Long: "Checks a provenance bundle: that the issuer's server signed the token in it, that the statement is signed and says what the\n" +
			"token says, and with --file or --digest that it is about that file. Without --keys the keys are read from the issuer, so that\n" +
			"revoked ones count for nothing; with a file of keys no network is needed. The exit code is 1 when the bundle does not hold.",
		Example: "  kici verify-attestation app.tgz.kici.json --issuer https://ci.example --file app.tgz",
		Args:    cobra.ExactArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return v.run(cmd.Context(), args[0]) },
	}
	flags := cmd.Flags()
	flags.StringVar(&v.issuer, "issuer", "", "URL of the server that must have signed, exactly as it calls itself")
	flags.StringVar(&v.keys, "keys", "", "file or URL of the issuer's keys (default: below the issuer)")
	flags.StringVar(&v.audience, "audience", attest.Audience, "for whom the token must be")
	flags.StringVar(&v.file, "file", "", "file that the bundle must be about")
	flags.StringVar(&v.digest, "digest", "", "digest that the bundle must be about, such as sha256:9f86d0…")
	flags.BoolVar(&v.strict, "strict", false, "take the bundle only within the ten minutes for which its token holds")
	flags.BoolVar(&v.json, "json", false, "print the verdict as JSON")
	return cmd
}

func (v *verification) run(ctx context.Context, path string) error {
	if v.issuer == "" {
		return console.Usage("name the server that must have signed with --issuer")
	}
	wanted, err := v.wanted()
	if err != nil {
		return err
	}
	bundle, err := readBounded(path)
	if err != nil {
		return err
	}
	keys, err := v.keySet(ctx)
	if err != nil {
		return err
	}
	verdict := attest.Verify(attest.Request{Bundle: bundle, Keys: keys, Issuer: v.issuer, Audience: v.audience, Digest: wanted, Now: time.Now().Unix(), AtIssue: !v.strict})
	if err := v.show(verdict); err != nil {
		return err
	}
	if !verdict.Verified {
		return &console.ExitError{Code: console.ExitFailure}
	}
	return nil
}

// wanted is the digest that the bundle must be about, nil for any.
func (v *verification) wanted() (*attest.Digest, error) {
	switch {
	case v.file != "" && v.digest != "":
		return nil, console.Usage("--file and --digest both say what the bundle is about: give one of them")
	case v.digest != "":
		algorithm, digits, ok := strings.Cut(v.digest, ":")
		if !ok || algorithm == "" || !attest.GoodDigest(digits) {
			return nil, console.Usage("--digest %s: must be ALGORITHM:DIGITS, in lower-case hexadecimal", v.digest)
		}
		return &attest.Digest{Algorithm: algorithm, Hex: digits}, nil
	case v.file != "":
		f, err := os.Open(v.file)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		sum := sha256.New()
		if _, err := io.Copy(sum, f); err != nil {
			return nil, fmt.Errorf("read %s: %w", v.file, err)
		}
		return &attest.Digest{Algorithm: "sha256", Hex: hex.EncodeToString(sum.Sum(nil))}, nil
	}
	return nil, nil
}

func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, attest.MaxBundle+1))
	if err == nil && len(raw) > attest.MaxBundle {
		err = fmt.Errorf("it is larger than %d bytes", attest.MaxBundle)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return raw, nil
}

// keysTime bounds how long an issuer may take to give its keys.
const keysTime = 30 * time.Second

// keySet reads the keys from a file, or from where they are published.
func (v *verification) keySet(ctx context.Context) ([]byte, error) {
	from := v.keys
	if from == "" {
		from = strings.TrimRight(v.issuer, "/") + attest.KeySetPath
	}
	if !strings.HasPrefix(from, "https://") && !strings.HasPrefix(from, "http://") {
		return readBounded(from)
	}
	ctx, cancel := context.WithTimeout(ctx, keysTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return nil, fmt.Errorf("read keys: %w", err)
	}
	// Keys are the root of all trust: whoever answers for the issuer must not send the question elsewhere.
	direct := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := direct.Do(req)
	if err != nil {
		return nil, fmt.Errorf("read keys: %w", err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, attest.MaxBundle))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers HTTP %d", from, resp.StatusCode)
	}
	if err != nil {
		return nil, fmt.Errorf("read keys: %w", err)
	}
	return raw, nil
}

func (v *verification) show(verdict attest.Verdict) error {
	if v.json {
		return v.PrintJSON(verdict)
	}
	if !verdict.Verified {
		fmt.Fprintf(v.Stdout, "not verified: %s\n", strings.Join(verdict.Failures, ", "))
		return nil
	}
	claims := verdict.Build()
	t := console.Table{What: "claims", Head: []string{"WHAT", "VALUE"}}
	t.Row("repository", claims.Repository)
	t.Row("ref", claims.Ref)
	t.Row("commit", claims.SHA)
	t.Row("workflow", claims.Workflow)
	t.Row("run", claims.Run)
	t.Row("job", claims.Job)
	fmt.Fprintln(v.Stdout, "verified")
	t.Write(v.Stdout)
	return nil
}
