package weir.hadoop;

import java.io.IOException;
import java.nio.ByteBuffer;

/**
 * The calls into the native library. Sessions and files are numbers, which the library checks: one
 * that is closed is an {@link IOException}.
 */
final class Native {
  /** Grows when a call changes its meaning; bindings/jni/src/lib.rs has the same number. */
  static final int INTERFACE = 3;

  private Native() {
  }

  static native String version();

  static native long connect(String cluster, String credential, String user, String other,
      String job) throws IOException;

  static native void disconnect(long session) throws IOException;

  static native byte[] stat(long session, String path, boolean follow) throws IOException;

  static native byte[] list(long session, long dir, long cookie, long last) throws IOException;

  static native byte[] listLocated(long session, long dir, long cookie, long last, long block)
      throws IOException;

  static native long open(long session, String path) throws IOException;

  static native long append(long session, String path) throws IOException;

  static native long create(long session, String path, boolean overwrite, int mode, int umask)
      throws IOException;

  static native void mkdirs(long session, String path, int mode, int umask) throws IOException;

  static native void rename(long session, String from, String to, boolean replace)
      throws IOException;

  static native void remove(long session, String path, boolean recursive) throws IOException;

  static native void change(long session, String path, int mode, long uid, long gid, long mtime,
      long atime) throws IOException;

  static native void truncate(long session, String path, long size) throws IOException;

  static native byte[] usage(long session, String path) throws IOException;

  static native byte[] getXattr(long session, String path, String name) throws IOException;

  static native void setXattr(long session, String path, String name, byte[] value, int mode)
      throws IOException;

  static native byte[] listXattr(long session, String path) throws IOException;

  static native void removeXattr(long session, String path, String name) throws IOException;

  static native byte[] readlink(long session, String path) throws IOException;

  static native byte[] locations(long session, String path, long start, long len, long block)
      throws IOException;

  static native byte[] hosts(long session) throws IOException;

  static native String userName(int uid);

  static native String groupName(int gid);

  static native long userNumber(String name) throws IOException;

  static native long groupNumber(String name) throws IOException;

  static native int read(long file, long offset, ByteBuffer buffer, int at, int len)
      throws IOException;

  static native int readRanges(long file, long[] places, ByteBuffer buffer) throws IOException;

  static native void write(long file, long offset, ByteBuffer buffer, int at, int len)
      throws IOException;

  static native void flush(long file) throws IOException;

  static native void sync(long file) throws IOException;

  static native long size(long file) throws IOException;

  static native void close(long file) throws IOException;
}
