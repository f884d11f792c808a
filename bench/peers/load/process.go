package load

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// Proc is one reading of a process.
type Proc struct {
	CPU float64 // user+sys seconds
	RSS int64   // KiB
	HWM int64   // the most RSS was, in KiB
	WrB int64   // bytes written to storage
}

// ReadProc reads /proc of a process; without one (pid 0) all is zero.
func ReadProc(pid int) (p Proc) {
	if pid <= 0 {
		return
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return
	}
	s := string(b)
	s = s[strings.LastIndexByte(s, ')')+2:]
	f := strings.Fields(s)
	u, _ := strconv.ParseFloat(f[11], 64)
	k, _ := strconv.ParseFloat(f[12], 64)
	p.CPU = (u + k) / 100
	b, _ = os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for _, l := range strings.Split(string(b), "\n") {
		if strings.HasPrefix(l, "VmRSS:") {
			fmt.Sscanf(l[6:], "%d", &p.RSS)
		}
		if strings.HasPrefix(l, "VmHWM:") {
			fmt.Sscanf(l[6:], "%d", &p.HWM)
		}
	}
	b, _ = os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	for _, l := range strings.Split(string(b), "\n") {
		if strings.HasPrefix(l, "write_bytes:") {
			fmt.Sscanf(l[12:], "%d", &p.WrB)
		}
	}
	return
}

// SelfCPU is the CPU of this process, in seconds.
func SelfCPU() float64 {
	var ru syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &ru)
	return float64(ru.Utime.Sec+ru.Stime.Sec) + float64(ru.Utime.Usec+ru.Stime.Usec)/1e6
}

// machine is how long all cores together were busy, idle and stolen, in seconds.
func machine() (busy, idle, steal float64) {
	b, _ := os.ReadFile("/proc/stat")
	f := strings.Fields(strings.SplitN(string(b), "\n", 2)[0])
	v := func(i int) float64 { x, _ := strconv.ParseFloat(f[i], 64); return x / 100 }
	return v(1) + v(2) + v(3) + v(6) + v(7), v(4) + v(5), v(8)
}

// Load1 is the load average of the last minute.
func Load1() float64 {
	b, _ := os.ReadFile("/proc/loadavg")
	f, _ := strconv.ParseFloat(strings.Fields(string(b))[0], 64)
	return f
}
