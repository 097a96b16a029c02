package dockertest

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// Here is a Process that runs the command of a container on this machine, with its folders in place of those of the
// container. Names of folders are put right in the first line that it reads, which is where a runner is told its own.
func Here(m Made, stdin io.Reader, stdout, stderr io.Writer, signals <-chan string, killed <-chan struct{}) int {
	here := func(path string) string {
		for _, bind := range m.HostConfig.Binds {
			if parts := strings.Split(bind, ":"); parts[1] == path {
				return parts[0]
			}
		}
		return path
	}
	cmd := exec.Command(here(m.Entrypoint[0]), m.Cmd...)
	cmd.Dir, cmd.Env = here(m.WorkingDir), append([]string{"PATH=" + os.Getenv("PATH")}, m.Env...)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		_, _ = io.WriteString(stderr, err.Error())
		return 127
	}
	go func() { // ends with the connection or the process
		defer in.Close()
		lines := bufio.NewReader(stdin)
		first, _ := lines.ReadString('\n')
		_, _ = io.WriteString(in, strings.Replace(first, `"`+m.WorkingDir+`"`, `"`+cmd.Dir+`"`, 1))
		_, _ = io.Copy(in, lines)
	}()
	ended := make(chan struct{})
	go func() {
		select {
		case <-signals:
			_ = cmd.Process.Signal(syscall.SIGTERM)
			<-killed
		case <-killed:
		case <-ended:
		}
		_ = cmd.Process.Kill()
	}()
	_ = cmd.Wait()
	close(ended)
	return cmd.ProcessState.ExitCode()
}
