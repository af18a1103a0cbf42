package weir.hadoop;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;

/** What the native library says of a file: bindings/jni/src/records.rs draws the bytes. */
final class FileRecord {
  static final int FILE = 0;
  static final int DIRECTORY = 1;
  static final int SYMLINK = 2;

  final int kind;
  final boolean hasAcl;
  final int mode;
  final int uid;
  final int gid;
  final long id;
  final long size;
  final long mtimeMs;
  final long atimeMs;
  /** Its name, of an entry of a directory. */
  final String name;

  private FileRecord(ByteBuffer from, String name) {
    this.name = name;
    kind = from.get();
    hasAcl = from.get() != 0;
    mode = from.getShort() & 07777;
    uid = from.getInt();
    gid = from.getInt();
    id = from.getLong();
    size = from.getLong();
    mtimeMs = from.getLong();
    atimeMs = from.getLong();
  }

  static FileRecord of(byte[] bytes) {
    return new FileRecord(ByteBuffer.wrap(bytes), "");
  }

  static FileRecord entry(ByteBuffer from) {
    byte[] name = new byte[from.getShort() & 0xffff];
    from.get(name);
    return new FileRecord(from, new String(name, StandardCharsets.UTF_8));
  }

  boolean isDirectory() {
    return kind == DIRECTORY;
  }

  boolean isSymlink() {
    return kind == SYMLINK;
  }
}
