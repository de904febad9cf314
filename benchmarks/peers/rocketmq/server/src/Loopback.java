import java.io.IOException;
import java.lang.reflect.Field;
import java.net.InetAddress;
import java.util.Arrays;
import javassist.CannotCompileException;
import javassist.ClassPool;
import javassist.CtClass;
import javassist.CtConstructor;
import javassist.expr.ExprEditor;
import javassist.expr.MethodCall;
import javassist.LoaderClassPath;

/**
 * Starts another main class in a process that listens on 127.0.0.1 only, and ends when its standard input does.
 *
 * <p>The broker's port for replicas and both ports of the proxy listen on all interfaces, and RocketMQ has no setting
 * for their address. A benchmark has no business there. Needs --add-opens of java.net and java.lang in java.base.
 *
 * <p>-Dbench.hour.ms=N: an hour of the timer of RocksDB is so short.
 */
public final class Loopback {
    private static final byte[] ADDRESS = {127, 0, 0, 1};

    private Loopback() {
    }

    public static void main(String[] arguments) throws Exception {
        replaceAnyAddress();
        replaceAddressOfNetty();
        endWithInput();
        Long hourMs = Long.getLong("bench.hour.ms");
        if (hourMs != null) {
            shortenHours(hourMs);
        }
        String[] rest = Arrays.copyOfRange(arguments, 1, arguments.length);
        Class.forName(arguments[0]).getMethod("main", String[].class).invoke(null, (Object) rest);
    }

    /** What is bound to when only a port is given: the broker's replicas, the proxy's gRPC. */
    private static void replaceAnyAddress() throws ReflectiveOperationException, IOException {
        Field field = InetAddress.class.getDeclaredField("impl");
        field.setAccessible(true);
        Object impl = field.get(null);
        Field any = impl.getClass().getDeclaredField("anyLocalAddress");
        any.setAccessible(true);
        any.set(impl, InetAddress.getByAddress(ADDRESS));
    }

    /** What RocketMQ's own protocol is bound to, "0.0.0.0" unless a setting says otherwise; the proxy reads none. */
    private static void replaceAddressOfNetty() throws Exception {
        ClassPool pool = new ClassPool();
        pool.appendClassPath(new LoaderClassPath(Loopback.class.getClassLoader()));
        CtClass settings = pool.get("org.apache.rocketmq.remoting.netty.NettyServerConfig");
        for (CtConstructor constructor : settings.getConstructors()) {
            constructor.insertAfter("this.bindAddress = \"127.0.0.1\";");
        }
        settings.toClass();
    }

    /** The timer of RocksDB writes again what is pending at intervals that are set in whole hours: of so many milliseconds. */
    private static void shortenHours(long hourMs) throws Exception {
        ClassPool pool = new ClassPool();
        pool.appendClassPath(new LoaderClassPath(Loopback.class.getClassLoader()));
        CtClass service = pool.get("org.apache.rocketmq.store.timer.rocksdb.Timeline$TimelineRollService");
        service.getDeclaredMethod("run").instrument(new ExprEditor() {
            @Override
            public void edit(MethodCall call) throws CannotCompileException {
                if (call.getMethodName().equals("toMillis")) {
                    String hours = "$0 == java.util.concurrent.TimeUnit.HOURS";
                    call.replace("$_ = " + hours + " ? $1 * " + hourMs + "L : $proceed($$);");
                }
            }
        });
        service.toClass();
    }

    /** Who has started it holds the other end: killed with -9, it would leave a broker behind that is never idle. */
    private static void endWithInput() {
        Thread thread = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                }
            } catch (IOException error) {
                // as good as its end
            }
            Runtime.getRuntime().halt(1);
        }, "end-with-input");
        thread.setDaemon(true);
        thread.start();
    }
}
